"""A generated world of fictional people and places, with its documents and questions."""
