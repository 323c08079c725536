"""An audit, from the listing to the findings in the catalog: `kidx verify` and the job verify_index."""
