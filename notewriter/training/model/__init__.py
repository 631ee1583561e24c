"""The trained model: its weights, its adapters, and the changed functions of TRL and PEFT."""
