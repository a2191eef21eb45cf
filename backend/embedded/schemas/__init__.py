"""The schemas of custom resources, obeyed as the apiserver obeys them: pruned, defaulted, validated, with their CEL rules."""

from dispatch_kubeflow.backend.embedded.schemas.structural import StructuralSchema

__all__ = ["StructuralSchema"]
