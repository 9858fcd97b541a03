// Package docs embeds the documents that commands print. Its tests compare documents with the code.
package docs

import _ "embed" // for Rules

// Rules is rules.md: the meaning, an example, the remedy and a sample of every rule.
//
//go:embed rules.md
var Rules string
