"""Requests that nobody thought of: drawn at random, sent to the real control plane and to the embedded cluster."""
