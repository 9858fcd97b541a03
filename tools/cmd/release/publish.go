package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/tools/release"
	"github.com/opgate/opgate/tools/release/signing"
)

func newPushCommand() *cobra.Command {
	var registry string
	cmd := &cobra.Command{
		Use:   "push DIRECTORY",
		Short: "Push the image and the chart of a release, with their signatures, and print their references",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pushed, err := release.Push(cmd.Context(), args[0], registry)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n%s\n", pushed.Image, pushed.Chart)
			return err
		},
	}
	cmd.Flags().StringVar(&registry, "to", "", "registry, and path in it, such as "+release.Registry+
		"; with the credentials of \"docker login\"")
	_ = cmd.MarkFlagRequired("to")
	return cmd
}

func newVerifyCommand() *cobra.Command {
	var registry, key string
	cmd := &cobra.Command{
		Use:   "verify DIRECTORY",
		Short: "Verify the files of a release, and with --from its image and its chart in a registry",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pem, err := os.ReadFile(key)
			if err != nil {
				return err
			}
			verifier, err := signing.LoadVerifier(pem)
			if err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			if err := release.VerifyFiles(args[0], verifier); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "verified the files in %s\n", args[0])
			if registry == "" {
				return nil
			}
			published, err := release.Find(args[0], registry)
			if err != nil {
				return err
			}
			if err := published.Verify(cmd.Context(), verifier); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "verified %s\nverified %s\n", published.Image, published.Chart)
			return err
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "`file` with the public key")
	cmd.Flags().StringVar(&registry, "from", "", "registry, and path in it, that the release was pushed to")
	_ = cmd.MarkFlagRequired("key")
	return cmd
}
