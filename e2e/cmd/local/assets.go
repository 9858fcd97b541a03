package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/e2e/assets"
)

func newAssetsCommand() *cobra.Command {
	var olm bool
	cmd := &cobra.Command{
		Use:   "assets",
		Short: "Get the binaries of the control plane and print where they are",
		Long: `Find or build kube-apiserver, etcd and kubectl, and print the directory that they are in. With --olm, build OLM's
operators and its catalog server as well; these stay in the cache, where tests find them.

"go test" hides progress and has a time limit, so this is called before it:

    KUBEBUILDER_ASSETS="$(go run ./cmd/local assets)" go test ./...`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := assets.Find(cmd.Context(), assets.Options{Log: cmd.ErrOrStderr()})
			if err != nil {
				return err
			}
			if olm {
				if _, err := assets.FindOLM(cmd.Context(), assets.Options{Log: cmd.ErrOrStderr()}); err != nil {
					return err
				}
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), found.Dir)
			return err
		},
	}
	cmd.Flags().BoolVar(&olm, "olm", false, "get OLM's binaries as well")
	return cmd
}
