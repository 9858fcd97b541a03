package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/tools/local"
)

// runCommandName is the hidden command that "up" leaves in the background.
const runCommandName = "run"

func newUpCommand() *cobra.Command {
	var options upFlags
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start it in the background",
		Long: `Start an API server with Opgate in front of it in the background, and return when it is ready. With --olm, start OLM as
well, with a catalog and its package server; "make up OLM=1" is the same. With --install, or "make up INSTALL=1", leave
Opgate to be installed with helm: OLM runs, and a node that has Opgate's image.

Everything is kept in .local of the repository: a kubeconfig with the contexts admin, tenant and olm, bin with kubectl,
opgate and its plugin, logs, and with --olm a policy to apply.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return local.Up(cmd.Context(), cmd.OutOrStdout(), append([]string{runCommandName}, options.args()...)...)
		},
	}
	options.bind(cmd)
	return cmd
}

func newRunCommand() *cobra.Command {
	var options upFlags
	cmd := &cobra.Command{
		Use:    runCommandName,
		Short:  "Be the background process of up",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return local.Run(cmd.Context(), cmd.OutOrStdout(), local.Options{Gate: options.binary,
				OLM: options.olm || options.install, Install: options.install})
		},
	}
	options.bind(cmd)
	return cmd
}

// upFlags are the flags of up.
type upFlags struct {
	startFlags
	install bool
}

func (f *upFlags) bind(cmd *cobra.Command) {
	f.startFlags.bind(cmd)
	cmd.Flags().BoolVar(&f.install, "install", false,
		"run OLM and a node that has the image, and leave Opgate to be installed with helm")
}

func (f *upFlags) args() []string {
	return append(f.startFlags.args(), "--install="+strconv.FormatBool(f.install))
}

// startFlags are the flags of commands that start a control plane.
type startFlags struct {
	binary string
	olm    bool
}

func (f *startFlags) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.binary, "server", "",
		"`path` of an opgate-server to run instead of building one from this checkout")
	cmd.Flags().BoolVar(&f.olm, "olm", false,
		"run OLM as well; its binaries are built the first time, which takes several minutes")
}

// args are the flags as another command takes them.
func (f *startFlags) args() []string {
	return []string{"--server=" + f.binary, "--olm=" + strconv.FormatBool(f.olm)}
}
