//! The check, option by option and rule by rule.

mod catalogue;
mod guard;
mod properties;
mod reject_rules;
mod rules;
mod secrets;
