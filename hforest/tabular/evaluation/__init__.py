"""What a model of a table is worth and why: errors, importances, SHAP values, pictures, the report."""
