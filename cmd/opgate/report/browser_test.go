package report

import (
	"bytes"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestBrowser looks at pages in Chromium, where it is installed: at 1400 and at 420 pixels nothing is wider than the page,
// and every cell is visible. Names are as long as they may be. TestPage needs no browser.
func TestBrowser(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no Chromium")
	}
	dir, long, frames := t.TempDir(), strings.Repeat("x", 63), ""
	file := func(name, of string, changes ...string) string {
		data, err := os.ReadFile(filepath.Join("testdata", of))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte(strings.NewReplacer(changes...).Replace(string(data))), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	for _, args := range [][]string{
		{"-f", "testdata/prod.yaml", "-f", file(long+".yaml", "stage.yaml", "shop", long, "etcd.v2", strings.Repeat("x", 253))},
		{"--kubeconfig", file("config.yaml", "unreachable.yaml", "LONG", long)},
	} {
		var page bytes.Buffer
		cmd := Command(noon)
		cmd.SetArgs(append(args, "-o", "html"))
		cmd.SetOut(&page)
		_ = cmd.ExecuteContext(t.Context()) // a cluster that cannot be read is an error, and on the page
		if !strings.Contains(page.String(), long) {
			t.Fatalf("report %q: %s", args, &page)
		}
		for _, width := range []int{1400, 420} {
			frames += fmt.Sprintf(`<iframe title="%s at %[2]d" width="%[2]d" height="2000" style="border: 0" srcdoc="%[3]s"></iframe>`,
				args[0], width, html.EscapeString(page.String()))
		}
	}
	dom, err := exec.CommandContext(t.Context(), browser, "--headless", "--no-sandbox", "--disable-gpu",
		"--user-data-dir="+filepath.Join(dir, "profile"), "--virtual-time-budget=5000", "--dump-dom",
		"file://"+file("measure.html", "measure.html", "FRAMES", frames)).Output()
	if title, _, _ := strings.Cut(string(dom), "</title>"); err != nil || !strings.HasSuffix(title, "<title>all is shown") {
		t.Errorf("%v: %s", err, title)
	}
}
