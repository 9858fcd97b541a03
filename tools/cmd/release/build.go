package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/e2e/assets/stopwatch"
	"github.com/opgate/opgate/tools/image"
	"github.com/opgate/opgate/tools/release"
	"github.com/opgate/opgate/tools/release/signing"
)

// passwordVariable holds the password of the private key, as for cosign.
const passwordVariable = "COSIGN_PASSWORD"

// buildFlags are the flags of "build".
type buildFlags struct {
	dir, version, base, key, builder string
	created                          int64
	platforms, targets               []string
}

func newBuildCommand() *cobra.Command {
	var flags buildFlags
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build everything that a release consists of, and sign it",
		Long: `Build the image, the chart, binaries, kubectl plugins, manifests, notes, checksums, signatures and provenance of a release into a
directory, which appears when all of it is built. Nothing is published.

The version is the tag of the commit, or v0.0.0-g and the commit where it has none. The same commit makes the same files, up to the
signatures. Without --key they are made with a key that is thrown away, and prove only that nothing was changed since.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.build(cmd.Context(), cmd.ErrOrStderr()); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), flags.dir)
			return err
		},
	}
	cmd.Flags().StringVar(&flags.dir, "dir", "", "`directory` to build into; a release in it is replaced")
	cmd.Flags().StringVar(&flags.version, "version", "",
		"version to build, such as v0.1.0 (default: the tag of the commit)")
	cmd.Flags().Int64Var(&flags.created, "created", 0,
		"time of all files, in `seconds` since 1970; that of the commit makes the same files every time")
	cmd.Flags().StringVar(&flags.base, "base", image.DefaultBase, "base image, or scratch")
	cmd.Flags().StringSliceVar(&flags.platforms, "platform", image.DefaultPlatforms(), "platforms of the image")
	cmd.Flags().StringSliceVar(&flags.targets, "target", release.Targets(),
		"platforms of the binaries and kubectl plugins")
	cmd.Flags().StringVar(&flags.key, "key", "",
		"`file` with the private key, as \"cosign generate-key-pair\" writes it; its password is in $"+passwordVariable)
	cmd.Flags().StringVar(&flags.builder, "builder", release.LocalBuilder, "URI of who builds, for the provenance")
	_ = cmd.MarkFlagRequired("dir")
	return cmd
}

func (f *buildFlags) build(ctx context.Context, log io.Writer) error {
	watch := stopwatch.Start()
	opts, err := f.options(ctx, log)
	if err != nil {
		return err
	}
	if err := release.Build(ctx, f.dir, opts); err != nil {
		return err
	}
	fmt.Fprintf(log, "built release %s in %s\n", opts.Version.Tag, watch)
	return nil
}

func (f *buildFlags) options(ctx context.Context, log io.Writer) (release.Options, error) {
	opts := release.Options{Base: f.base, Builder: f.builder, Created: time.Unix(f.created, 0), Log: log}
	var err error
	if opts.Platforms, err = image.Platforms(f.platforms); err != nil {
		return opts, err
	}
	if opts.Targets, err = release.ParseTargets(f.targets); err != nil {
		return opts, err
	}
	if opts.Checkout, err = repo.Find(); err != nil {
		return opts, err
	}
	if opts.Commit, err = release.FindCommit(ctx, opts.Checkout.Root); err != nil {
		return opts, err
	}
	if opts.Version, err = f.chooseVersion(opts.Commit, log); err != nil {
		return opts, err
	}
	if opts.Key, err = f.loadKey(log); err != nil {
		return opts, err
	}
	opts.Helm.Path, err = assets.FindHelm(ctx, assets.Options{Log: log}) // last: it may take minutes
	return opts, err
}

// chooseVersion returns the version to build, and states where it is not a release.
func (f *buildFlags) chooseVersion(commit release.Commit, log io.Writer) (release.Version, error) {
	version := commit.Version()
	if f.version != "" {
		var err error
		if version, err = release.ParseVersion(f.version); err != nil {
			return version, err
		}
	}
	if version.Tag != commit.Tag {
		fmt.Fprintf(log, "not a release: commit %s has no tag %s\n", commit.Revision, version.Tag)
	}
	if commit.Changed {
		fmt.Fprintln(log, "not a release: there are changes that are not committed, and the provenance will say so")
	}
	return version, nil
}

func (f *buildFlags) loadKey(log io.Writer) (*signing.Key, error) {
	if f.key == "" {
		fmt.Fprintln(log, "no --key: signing with a key that is made now and thrown away")
		return signing.NewKey()
	}
	pem, err := os.ReadFile(f.key)
	if err != nil {
		return nil, err
	}
	key, err := signing.LoadKey(pem, []byte(os.Getenv(passwordVariable)))
	if err != nil {
		return nil, fmt.Errorf("%s, with the password in $%s: %w", f.key, passwordVariable, err)
	}
	return key, nil
}
