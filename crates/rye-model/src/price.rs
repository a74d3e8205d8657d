//! Token usage and prices.

use rye_protocol::Usage;
use serde::{Deserialize, Serialize};

/// A price in dollars per million tokens, as configured.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(try_from = "f64")]
pub(crate) struct Dollars(pub(crate) f64);

impl TryFrom<f64> for Dollars {
    type Error = &'static str;

    fn try_from(dollars: f64) -> Result<Self, Self::Error> {
        if (0.0..1e9).contains(&dollars) {
            Ok(Self(dollars))
        } else {
            Err("`price` must be dollars per million tokens, at least 0")
        }
    }
}

/// Prices in dollars per million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Price {
    /// Price of input tokens.
    pub input: f64,
    /// Price of output tokens.
    pub output: f64,
    /// Input tokens read from the cache; defaults to `input`.
    pub cache_read: Option<f64>,
    /// Input tokens written to the cache; defaults to `input`.
    pub cache_write: Option<f64>,
}

/// Token counts of one answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tokens {
    /// All input tokens.
    pub input: u64,
    /// Input tokens read from the cache.
    pub cached: u64,
    /// Input tokens written to the cache.
    pub cache_write: u64,
    /// Output tokens, including reasoning.
    pub output: u64,
}

impl Price {
    /// The usage of one answer.
    pub fn usage(self, tokens: Tokens) -> Usage {
        let fresh = tokens
            .input
            .saturating_sub(tokens.cached)
            .saturating_sub(tokens.cache_write);
        let bill = [
            (fresh, self.input),
            (tokens.cached, self.cache_read.unwrap_or(self.input)),
            (tokens.cache_write, self.cache_write.unwrap_or(self.input)),
            (tokens.output, self.output),
        ];
        // Dollars per million tokens equal micro-dollars per token.
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "prices are not negative, and the result is an estimate"
        )]
        let micro_dollars = bill
            .into_iter()
            .map(|(tokens, price)| tokens as f64 * price)
            .sum::<f64>()
            .round() as u64;
        Usage {
            turns: 1,
            input_tokens: tokens.input,
            cached_tokens: tokens.cached,
            cache_write_tokens: tokens.cache_write,
            output_tokens: tokens.output,
            micro_dollars,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_tokens_have_their_own_price() {
        let price = Price {
            input: 3.0,
            output: 15.0,
            cache_read: Some(0.3),
            cache_write: Some(3.75),
        };
        let tokens = Tokens {
            input: 11_000,
            cached: 8_000,
            cache_write: 2_000,
            output: 100,
        };
        let usage = price.usage(tokens);
        assert_eq!(usage.micro_dollars, 3_000 + 2_400 + 7_500 + 1_500);
        let plain = Price {
            input: 3.0,
            output: 15.0,
            ..Price::default()
        };
        assert_eq!(plain.usage(tokens).micro_dollars, 33_000 + 1_500);
    }

    #[test]
    fn inconsistent_counts_never_cost_less_than_zero() {
        let odd = Tokens {
            input: 1,
            cached: 5,
            ..Tokens::default()
        };
        let price = Price {
            input: 2.0,
            cache_read: Some(0.0),
            ..Price::default()
        };
        assert_eq!(price.usage(odd).micro_dollars, 0);
    }
}
