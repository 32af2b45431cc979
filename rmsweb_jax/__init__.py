"""rmsweb-jax: Reflection, failure-mode Mining and Salvage-DS for web agents, in JAX."""
