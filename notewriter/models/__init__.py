"""Models: the client for endpoints, its response cache, vLLM servers, roles, and checkpoints on disk."""
