package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/e2e/assets"
)

func newAssetsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "assets",
		Short: "Get the binaries of the control plane and print where they are",
		Long: `Find or build kube-apiserver, etcd and kubectl, and print the directory that they are in.

"go test" hides progress and has a time limit, so this is called before it:

    KUBEBUILDER_ASSETS="$(go run ./cmd/local assets)" go test ./...`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := assets.Find(cmd.Context(), assets.Options{Log: cmd.ErrOrStderr()})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), found.Dir)
			return err
		},
	}
}
