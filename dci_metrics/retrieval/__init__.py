"""Image-text retrieval on DCI, in the protocols that papers use: `dci eval MODEL --tests retrieval --protocol all`.

A protocol decides which text stands for a photo, and which photos take part (`protocols.py`); everything else, from
the embeddings to the intervals, is the same for all of them.
"""
