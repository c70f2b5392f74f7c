"""GitHub as klaud sees it: records, protocols, decoders, and the two clients (REST/GraphQL and the git protocol)."""
