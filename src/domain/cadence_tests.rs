//! Tests of this rule.
