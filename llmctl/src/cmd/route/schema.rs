//! `llmctl route schema`: prints the JSON Schema of the files, for editors.

use clap::Args;
use router_config::schema;

use crate::exit::{Ended, Failure};
use crate::render::Screen;

/// What `llmctl route schema` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "An editor with a YAML language server completes and checks a file that begins with
  # yaml-language-server: $schema=route.schema.json

Example:
  llmctl route schema > routes/route.schema.json"
)]
pub struct SchemaArgs {
    /// The schema of router.yaml instead
    #[arg(long)]
    pub main: bool,
}

/// Prints the schema.
///
/// # Errors
/// When the schema cannot be written as JSON.
pub fn run(args: &SchemaArgs, screen: &mut Screen) -> Result<Ended, Failure> {
    screen.json(&if args.main {
        schema::main()
    } else {
        schema::route()
    })?;
    Ok(Ended::Fine)
}
