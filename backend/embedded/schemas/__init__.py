"""The schemas of custom resources, obeyed as the apiserver obeys them: pruned, defaulted, validated by CEL too."""

from dispatch_kubeflow.backend.embedded.schemas.structural import StructuralSchema

__all__ = ["StructuralSchema"]
