package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"github.com/opgate/opgate/tools/image"
)

// buildFlags are the flags of "build".
type buildFlags struct {
	commonFlags
	base, layout, archive, push string
}

func newBuildCommand() *cobra.Command {
	var flags buildFlags
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build the image and print its reference with the digest",
		Long: `Build the image for every platform, as an OCI image layout, and print its reference with the digest.

The same commit, version, base and compiler make the same digest. The base image is pulled; when it cannot be, that is an error,
and --base=scratch makes an image of the binary alone.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			reference, err := flags.build(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), reference)
			return err
		},
	}
	flags.bind(cmd)
	cmd.Flags().StringVar(&flags.base, "base", image.DefaultBase, "base image, or scratch")
	cmd.Flags().StringVar(&flags.layout, "layout", "", "`directory` for the OCI image layout")
	cmd.Flags().StringVar(&flags.archive, "archive", "",
		`file to write the image for this machine to, for "docker load"`)
	cmd.Flags().StringVar(&flags.push, "push", "",
		"registry/repository:tag to push to, with the credentials of \"docker login\"")
	_ = cmd.MarkFlagRequired("layout")
	return cmd
}

// build returns the reference of what it built.
func (f *buildFlags) build(ctx context.Context, log io.Writer) (string, error) {
	// What can be wrong without having compiled comes first.
	tag, err := name.NewTag(image.Name + ":" + f.version)
	if err != nil {
		return "", fmt.Errorf("version %q cannot be a tag: %w", f.version, err)
	}
	if f.push != "" {
		if tag, err = name.NewTag(f.push, name.StrictValidation); err != nil {
			return "", fmt.Errorf("push to %q: %w", f.push, err)
		}
	}
	base, err := image.FindBase(ctx, f.base, log)
	if err != nil {
		return "", err
	}

	temp, err := os.MkdirTemp("", "opgate-image-*")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	binaries, err := f.compile(ctx, temp, log)
	if err != nil {
		return "", err
	}
	index, err := image.Assemble(base, binaries, f.metadata())
	if err != nil {
		return "", err
	}
	if err := image.WriteLayout(f.layout, index, f.version); err != nil {
		return "", err
	}
	fmt.Fprintf(log, "wrote the OCI image layout %s\n", f.layout)
	if f.archive != "" {
		local := v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
		if err := image.WriteArchive(f.archive, index, local, tag); err != nil {
			return "", err
		}
		fmt.Fprintf(log, "wrote %s for %s, which \"docker load\" reads\n", f.archive, local)
	}
	if f.push != "" {
		if err := image.Push(ctx, index, tag); err != nil {
			return "", err
		}
		fmt.Fprintf(log, "pushed %s\n", tag)
	}
	digest, err := index.Digest()
	if err != nil {
		return "", err
	}
	return tag.String() + "@" + digest.String(), nil
}
