"""What all subpackages share: validation, dispatch, launches, threads, random numbers. Knows no trees."""
