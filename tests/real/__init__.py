"""The real control plane as plain processes: what everything else in the project is judged against."""
