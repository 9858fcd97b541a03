package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCommand is for packagers, and hidden from everybody else.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIRECTORY",
		Short:  "Write the man pages of all commands",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // man pages are for everyone
				return fmt.Errorf("make the directory of the man pages: %w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // the day of the build would make every build another
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "opgate " + buildVersion(), Manual: "Opgate"}, args[0])
		},
	}
}
