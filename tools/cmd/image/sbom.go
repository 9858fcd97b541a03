package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/tools/image"
)

func newSBOMCommand() *cobra.Command {
	var flags commonFlags
	var output string
	cmd := &cobra.Command{
		Use:   "sbom",
		Short: "List the modules in the binaries of the image, as SPDX",
		Long: `Build the binaries of the image and write an SPDX document of the modules in them, as the linker recorded them. The same
commit, version and compiler make the same binaries as those in the image; the document has their digests.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			temp, err := os.MkdirTemp("", "opgate-sbom-*")
			if err != nil {
				return err
			}
			defer func() { _ = os.RemoveAll(temp) }()
			binaries, err := flags.compile(cmd.Context(), temp, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			var document bytes.Buffer
			if err := image.WriteSBOM(&document, binaries, flags.metadata()); err != nil {
				return err
			}
			if err := os.MkdirAll(filepath.Dir(output), 0o750); err != nil {
				return err
			}
			if err := os.WriteFile(output, document.Bytes(), 0o644); err != nil { //nolint:gosec // made to be published
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), output)
			return err
		},
	}
	flags.bind(cmd)
	cmd.Flags().StringVar(&output, "output", "opgate-server.spdx.json", "`file` to write")
	return cmd
}
