package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/tools/image"
)

// commonFlags say what is built.
type commonFlags struct {
	version, revision, fips string
	created                 int64
	platforms               []string
}

func (f *commonFlags) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.version, "version", "devel", "version that the binary and the image say they are")
	cmd.Flags().StringVar(&f.revision, "revision", "", "commit that the image says it is of")
	cmd.Flags().Int64Var(&f.created, "created", 0,
		"when it was made, in `seconds` since 1970; give that of the commit for the same digest every time")
	cmd.Flags().StringVar(&f.fips, "fips140", image.FIPSOff,
		"Go Cryptographic Module to build with, in FIPS 140-3 mode: certified, inprocess or a version")
	cmd.Flags().StringSliceVar(&f.platforms, "platform", image.DefaultPlatforms(), "platforms to build for")
}

func (f *commonFlags) metadata() image.Metadata {
	return image.Metadata{Version: f.version, Revision: f.revision, Created: time.Unix(f.created, 0)}
}

// compile builds the checkout around the working directory, into dir.
func (f *commonFlags) compile(ctx context.Context, dir string, log io.Writer) ([]image.Binary, error) {
	platforms, err := image.Platforms(f.platforms)
	if err != nil {
		return nil, err
	}
	checkout, err := repo.Find()
	if err != nil {
		return nil, err
	}
	return image.Compile(ctx, image.Server, checkout.Root, dir, f.version, f.fips, platforms, log)
}
