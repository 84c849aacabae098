def model_cases():
    return []
