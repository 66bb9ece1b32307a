"""The balance of banks: loads, masks, cycles and area; `docs/balance.md` has the results."""
