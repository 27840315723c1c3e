"""Losses and scores by the names that people give them."""

from __future__ import annotations

MEASURES = (
    r"loss|nll|elbo|kl|acc(?:uracy)?(?:@\d+)?|ppl|perplexity|bp[bc]|error|r?mse|mae|mape|r2|f1|auc|precision|recall"
    r"|m?iou|dice|fid|psnr|ssim|[wct]er|bleu|chrf|rouge\w?|mrr|ndcg|reward|return|score"
)
"""An expression for the words themselves, in small letters."""

MEASURED = rf"(?i)(?:^|[_/.-])(?:{MEASURES})$"
"""An expression for a name that ends in one of them: `val/acc`."""
