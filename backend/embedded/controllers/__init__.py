"""The controllers of the embedded cluster: what makes a TrainJob run, as Trainer, JobSet and Kubernetes do."""
