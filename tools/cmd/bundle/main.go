// Command bundle makes a bundle of Opgate for OLM, and a catalog with it, from the Helm chart. "make bundle" runs it.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/tools/bundle"
	"github.com/opgate/opgate/tools/cli"
)

func main() { os.Exit(cli.Run(context.Background(), newCommand())) }

func newCommand() *cobra.Command {
	var options bundle.Options
	var output, image string
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Make a bundle of Opgate for OLM, and a file-based catalog with it, from the Helm chart",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			checkout, err := repo.Find()
			if err != nil {
				return err
			}
			helm, err := assets.FindHelm(cmd.Context(), assets.Options{Log: os.Stderr})
			if err != nil {
				return err
			}
			made, err := bundle.Generate(cmd.Context(), helm, checkout, options)
			if err != nil {
				return err
			}
			if err := made.Write(output); err != nil {
				return err
			}
			if image == "" {
				image = "ghcr.io/opgate/opgate-bundle:v" + made.Version
			}
			// The only one of its catalog, so that it replaces none there.
			alone := *made
			alone.Replaces = ""
			catalog, err := bundle.Catalog([]*bundle.Bundle{&alone}, []string{image})
			if err != nil {
				return err
			}
			path := filepath.Join(output, "catalog", bundle.Package, "catalog.yaml")
			if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
				return err
			}
			if err := os.WriteFile(path, catalog, 0o644); err != nil { //nolint:gosec // made to be published
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), output)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&output, "output", "bundle", "`directory` to write to, which is replaced")
	flags.StringVar(&options.Version, "version", "", "version of the bundle (default: the chart's)")
	flags.StringVar(&options.Replaces, "replaces", "", "version that the bundle replaces (default: none)")
	flags.StringVar(&options.Image, "image", "", "Opgate's image, best by digest (default: the chart's)")
	flags.StringVar(&image, "bundle-image", "", "image of the bundle, which the catalog refers to")
	flags.StringVar(&options.OLMIdentity, "olm-identity", "",
		"account that OLM runs as (default: that of an OLM in namespace olm)")
	flags.StringVar(&options.FIPS140, "fips140", "off",
		"Go Cryptographic Module that the image was built with: off, certified, inprocess or a version")
	return cmd
}
