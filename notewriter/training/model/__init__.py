"""The model that is trained: its weights, its adapters, and what is changed of TRL and PEFT."""
