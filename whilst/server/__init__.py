"""The live translation server: many sessions over WebSocket and HTTP, one model that does their steps together."""
