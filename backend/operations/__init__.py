"""The calls of a Backend, one file a call or family; each reads like the table of the contract that defines it."""
