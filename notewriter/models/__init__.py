"""Models: the client for endpoints, its response cache, vLLM servers, roles, and checkpoints on disk."""

from typing import Literal, get_args

Role = Literal["policy", "notes", "query", "answer", "judge"]
"""The role of a stage's model; the policy plays every role without its own model."""

ROLES: tuple[Role, ...] = get_args(Role)
"""The roles of models in methods and judges; unknown names would be ignored silently."""
