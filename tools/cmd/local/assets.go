package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/e2e/assets"
)

func newAssetsCommand() *cobra.Command {
	var olm, install bool
	cmd := &cobra.Command{
		Use:   "assets",
		Short: "Get the binaries of the control plane and print where they are",
		Long: `Find or build kube-apiserver, etcd and kubectl, and print the directory that they are in. With --olm, build OLM's
operators and its catalog server as well, with --install what an installation is tested with: kube-controller-manager, helm,
cert-manager and Prometheus. These stay in the cache, where tests find them.

"go test" hides progress and has a time limit, so this is called before it:

    KUBEBUILDER_ASSETS="$(go run ./cmd/local assets)" go -C ../e2e test ./...`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, options := cmd.Context(), assets.Options{Log: cmd.ErrOrStderr()}
			found, err := assets.Find(ctx, options)
			if err != nil {
				return err
			}
			if olm {
				if _, err := assets.FindOLM(ctx, options); err != nil {
					return err
				}
			}
			if install {
				if err := findInstall(ctx, options); err != nil {
					return err
				}
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), found.Dir)
			return err
		},
	}
	cmd.Flags().BoolVar(&olm, "olm", false, "get OLM's binaries as well")
	cmd.Flags().BoolVar(&install, "install", false,
		"get kube-controller-manager, helm, cert-manager and Prometheus as well")
	return cmd
}

func findInstall(ctx context.Context, options assets.Options) error {
	if _, err := assets.FindControllers(ctx, options); err != nil {
		return err
	}
	if _, err := assets.FindHelm(ctx, options); err != nil {
		return err
	}
	if _, err := assets.FindHelm3(ctx, options); err != nil { // after Helm 4, with which it shares most packages
		return err
	}
	if _, err := assets.FindCertManager(ctx, options); err != nil {
		return err
	}
	_, err := assets.FindPrometheus(ctx, options)
	return err
}
