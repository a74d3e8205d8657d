//! What an answer used up, and what that costs.

use rye_protocol::Usage;

/// What tokens cost, in dollars for a million of them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Price {
    /// Those that the model reads.
    pub input: f64,
    /// Those that it writes.
    pub output: f64,
    /// Those that it reads from a cache; else as all that it reads.
    pub cache_read: Option<f64>,
    /// Those that it reads and puts into a cache; else as all that it reads.
    pub cache_write: Option<f64>,
}

/// How much was read and written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Tokens that were read, all of them.
    pub input: u64,
    /// Of these, how many came from a cache.
    pub cached: u64,
    /// And how many were put into one.
    pub cache_write: u64,
    /// Tokens that were written, thoughts included.
    pub output: u64,
}

impl Price {
    /// What one answer used up.
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
        // A dollar for a million tokens is a millionth of a dollar for one.
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a price is not negative, and an estimate"
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
    fn what_comes_from_a_cache_has_its_own_price() {
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
    fn a_server_that_counts_oddly_costs_nothing_below_zero() {
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
