package demo

import (
	"io/fs"
	"slices"
	"strings"
	"testing"
)

func TestCheckCatchesWhatAStepDoesNotSay(t *testing.T) {
	tests := map[string]struct {
		command  command
		exitCode int
		output   string
		want     string // "" when the command did what it must
	}{
		"succeeds": {
			command: command{output: []string{"etcd Manual"}},
			output:  "NAME   APPROVAL\netcd   Manual\n",
		},
		"is refused": {
			command:  command{refused: true, output: []string{"denied"}},
			exitCode: 1,
			output:   "denied the request",
		},
		"is allowed but had to be refused": {
			command: command{refused: true},
			want:    "had to be refused, and was not",
		},
		"is refused but had to succeed": {
			command:  command{},
			exitCode: 1,
			want:     "had to succeed, and ended with exit code 1",
		},
		"is refused for another reason": {
			command:  command{refused: true, output: []string{"denied"}},
			exitCode: 1,
			output:   "connection refused",
			want:     `had to have "denied" in it`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := test.command.check("kubectl", test.exitCode, test.output)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("got error %v, want none", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got error %v, want it to say %q", err, test.want)
			}
		})
	}
}

func TestStepsUseManifestsThatExist(t *testing.T) {
	for _, step := range append(steps(), olmSteps()...) {
		for _, command := range step.commands {
			files := slices.Clone(command.args)
			if command.show != "" {
				files = append(files, command.show)
			}
			for _, file := range files {
				file = strings.TrimPrefix(file, "--patch-file=")
				if !strings.HasSuffix(file, ".yaml") {
					continue
				}
				if _, err := fs.Stat(manifests, file); err != nil {
					t.Errorf("%s: %v", step.title, err)
				}
			}
		}
	}
}

func TestQuoteIsWhatAShellReads(t *testing.T) {
	got := quote([]string{"kubectl", "--type=merge", "--patch", `{"spec":{"approved":true}}`, "it's"})
	want := `kubectl --type=merge --patch '{"spec":{"approved":true}}' 'it'\''s'`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
