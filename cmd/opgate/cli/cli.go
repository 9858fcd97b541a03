// Package cli is what the commands share: how they read arguments, and how they end.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// NamespacedName parses NAMESPACE/NAME, or NAME of an object in a namespace, and reports whether both are names of objects.
func NamespacedName(arg, namespace string) (key types.NamespacedName, ok bool) {
	name := arg
	if before, after, found := strings.Cut(arg, "/"); found {
		namespace, name = before, after
	}
	return types.NamespacedName{Namespace: namespace, Name: name},
		len(validation.IsDNS1123Label(namespace)) == 0 && len(validation.IsDNS1123Subdomain(name)) == 0
}

// ExitError is an error with the exit code of the process. Its message is empty if everything has been printed.
type ExitError struct {
	Code    int
	Message string
	// Cause is the error that the message is about, if any.
	Cause error
}

// Unwrap returns the cause.
func (e *ExitError) Unwrap() error { return e.Cause }

func (e *ExitError) Error() string { return e.Message }

// ExitCode returns the exit code of the process.
func (e *ExitError) ExitCode() int { return e.Code }

// Program prepares the root command of a program: its version ("" is what Go recorded of the build), its manual pages,
// and help that fits the terminal. Libraries log nothing until a command sets a logger: standard error belongs to what
// commands print.
func Program(root *cobra.Command, version string) *cobra.Command {
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	if version == "" {
		version = recordedVersion()
	}
	root.Version, root.SilenceUsage, root.SilenceErrors = version, true, true
	text := root.Name() + " " + version
	root.SetVersionTemplate(text + "\n")
	wrapped := fmt.Sprintf(".FlagUsagesWrapped %d", Width(os.Stdout))
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", wrapped))
	root.AddCommand(versionCommand(root.Name(), version), &cobra.Command{
		Use:    "man DIRECTORY",
		Short:  "Write the man pages of all commands",
		Hidden: true, // it is for packagers
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // man pages are for everyone
				return fmt.Errorf("make the directory of the man pages: %w", err)
			}
			root.DisableAutoGenTag = true // the day of the build would make every build another
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: text, Manual: "Opgate"}, args[0])
		},
	})
	return root
}

// Interruptible is the annotation of a root command whose commands SIGINT ends at once, whatever they do.
const Interruptible = "interruptible"

// interrupted is the exit code after SIGINT, as shells have it.
const interrupted = 130

// Main runs a program until it is done or a signal ends it, and ends the process. An error is printed unless its
// message is empty. The exit code is that of an error with a method ExitCode, as `opgate check` returns it (1 for a
// refusal, 2 for an unusable input or command line), else 1.
func Main(root *cobra.Command) {
	usageErrors(root)
	if root.Annotations[Interruptible] != "" {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, os.Interrupt)
		go func() {
			<-signals
			os.Exit(interrupted)
		}()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	cmd, err := root.ExecuteContextC(ctx)
	stop()
	if err == nil {
		os.Exit(0)
	}
	if _, coded := errors.AsType[*ExitError](err); cmd == root && !coded { // which command is meant is not known
		err = &ExitError{Code: ExitUnusable, Message: err.Error()}
	}
	if message := err.Error(); message != "" {
		fmt.Fprintln(os.Stderr, root.Name()+": "+message)
	}
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		os.Exit(coded.ExitCode())
	}
	os.Exit(1)
}

// usageErrors makes what is wrong with the flags and the number of arguments of any command an error with ExitUnusable.
func usageErrors(cmd *cobra.Command) {
	if !cmd.HasParent() {
		cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
			if !cmd.HasParent() {
				return err
			}
			return Usage(cmd, "%v", err)
		})
	}
	if arguments := cmd.Args; arguments != nil && cmd.HasParent() {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := arguments(cmd, args)
			if _, coded := errors.AsType[*ExitError](err); err == nil || coded {
				return err
			}
			return Usage(cmd, "%v", err)
		}
	}
	for _, child := range cmd.Commands() {
		usageErrors(child)
	}
}

// versionCommand prints the version.
func versionCommand(name, version string) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output == "json" {
				return JSON(cmd.OutOrStdout(), map[string]string{"name": name, "version": version})
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), name+" "+version)
			return err
		},
	}
	ChoiceVar(cmd, &output, "output", "o", "output format: json (default: text)", "json")
	return cmd
}

// recordedVersion returns what Go recorded of the module, with the commit, and of the compiler.
func recordedVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return cmp.Or(info.Main.Version, "devel") + " " + info.GoVersion
}
