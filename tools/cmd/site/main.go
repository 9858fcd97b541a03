// Command site renders the documents as static pages.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/tools/cli"
	"github.com/opgate/opgate/tools/site"
)

func main() { os.Exit(cli.Run(context.Background(), newCommand())) }

func newCommand() *cobra.Command {
	var output, source string
	cmd := &cobra.Command{
		Use:   "site",
		Short: "Render the documents as static pages, with a search that needs no server",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			checkout, err := repo.Find()
			if err != nil {
				return err
			}
			if output == "" {
				output = filepath.Join(checkout.Root, "bin", "site")
			}
			pages, err := site.Write(site.Options{Root: checkout.Root, Output: output, Source: source})
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d pages: %s\n", len(pages), filepath.Join(output, "index.html"))
			return nil
		},
	}
	cmd.Flags().StringVar(&output, "output", "", "`directory` of the pages, which is replaced (default: bin/site)")
	cmd.Flags().StringVar(&source, "source", "https://github.com/opgate/opgate/blob/main/",
		"`URL` of the files that are no pages, with a slash at the end")
	return cmd
}
