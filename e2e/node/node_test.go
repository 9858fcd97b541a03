package node

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/internal/speed"
)

const namespace = "web"

//go:embed testdata/server.yaml
var manifests string

// TestNode installs a webhook as a Deployment of two replicas behind a Service, and takes it through the lifecycle of
// such an installation.
func TestNode(t *testing.T) {
	e := start(t)
	const host = "server." + namespace + ".svc"
	certificate, key, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	e.kubectl(t, strings.ReplaceAll(manifests, "BUNDLE", base64.StdEncoding.EncodeToString(certificate)), "apply", "-f",
		"-")

	t.Run("a pod waits for what it needs", func(t *testing.T) {
		e.shows(t, `ContainerCreating volume tls: secrets "server" not found`, "get", "pods", "-n", namespace, "-l",
			"app=server",
			"-o", "jsonpath={range .items[*].status.containerStatuses[*].state.waiting}{.reason} {.message}{end}")
		if got := e.servers(); len(got) > 0 {
			t.Errorf("there are processes: %v", got)
		}
		e.refusesNoEndpoint(t)
		e.shows(t, `is waiting to start: ContainerCreating`, "logs", "-n", namespace, "deployment/server")
		e.kubectl(t, secret("one", certificate, key), "apply", "-f", "-")
		e.kubectl(t, "", "rollout", "status", "-n", namespace, "deployment/server")
		if got := e.servers(); len(got) != 2 {
			t.Errorf("there are %v, want two pods", got)
		}
	})
	t.Run("an image without a program does not start", func(t *testing.T) {
		e.shows(t, "Pending ErrImagePull no program stands for image registry.example:5000/other:v1", "get", "pods",
			"-n", namespace, "other",
			"-o", "jsonpath={.status.phase} {.status.containerStatuses[0].state.waiting.reason} {.status.containerStatuses[0].state.waiting.message}")
	})
	t.Run("a pod that need not start again has failed", func(t *testing.T) {
		e.shows(t, "1", "get", "job", "-n", namespace, "once", "-o", "jsonpath={.status.failed}")
	})
	t.Run("the API server reaches the Service", func(t *testing.T) {
		e.reports(t, "one", e.servers()...)
	})
	t.Run("a container gets what its pod says", func(t *testing.T) {
		pod := e.servers()[0]
		log, err := os.ReadFile(pod.Log)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("arguments [serve --namespace=web --name=%s --ip=%s --memory=64 --dir=%s]", pod.Name,
			pod.IP, filepath.Join(filepath.Dir(pod.Log), "volumes", "tls", "sub"))
		if !strings.Contains(string(log), want) {
			t.Errorf("the log is\n%s\nwant %s", log, want)
		}
		who, err := e.Run(t.Context(), cluster.Command{User: cluster.Admin,
			Args: []string{"auth", "whoami", "--kubeconfig", filepath.Join(filepath.Dir(pod.Log), "kubeconfig"),
				"--context", "default"}})
		if err != nil || !strings.Contains(who.Stdout, "system:serviceaccount:web:server") ||
			!strings.Contains(who.Stdout, pod.Name) {
			t.Errorf("the pod is %s%s (%v)", who.Stdout, who.Stderr, err)
		}
	})
	t.Run("kubectl shows logs", func(t *testing.T) {
		result, err := e.Kubectl(t.Context(), cluster.Admin, "", "logs", "-n", namespace, "deployment/server",
			"--tail=1")
		if err != nil || !slices.ContainsFunc(e.servers(),
			func(pod Pod) bool { return result.Stdout == "serving as "+pod.Name+"\n" }) {
			t.Errorf("the last line is %q (%s, %v)", result.Stdout, result.Stderr, err)
		}
		pod := e.servers()[0]
		for _, test := range []struct {
			what, want string
			args       []string
		}{
			{"a whole log", `(?s)^arguments \[serve .*serving as ` + pod.Name + "\n", []string{pod.Name}},
			{"its first bytes", "^argum$", []string{pod.Name, "--limit-bytes=5"}},
			{"that of a pod that has ended", `(?s)^arguments \[\].*there is no port webhook\n`, []string{"job/once"}},
		} {
			if got := e.kubectl(t, "", append([]string{"logs", "-n", namespace}, test.args...)...); !regexp.MustCompile(
				test.want).MatchString(got) {
				t.Errorf("%s is %q, want %s", test.what, got, test.want)
			}
		}
		for _, test := range []struct {
			what, want string
			args       []string
		}{
			{"a pod that waits", `container "other" in pod "other" is waiting to start: image can't be pulled`,
				[]string{"other"}},
			{"the process before", "parameter previous of logs: this node knows only follow, tailLines and limitBytes",
				[]string{pod.Name, "--previous"}},
			{"the time of lines", "parameter timestamps of logs: this node knows only follow, tailLines and limitBytes",
				[]string{pod.Name, "--timestamps"}},
			{"a duration", "parameter sinceSeconds of logs: this node knows only follow, tailLines and limitBytes",
				[]string{pod.Name, "--since=1m"}},
		} {
			result, err := e.Kubectl(t.Context(), cluster.Admin, "",
				append([]string{"logs", "-n", namespace}, test.args...)...)
			if want := "Error from server (BadRequest): " + test.want + "\n"; err != nil || result.ExitCode == 0 ||
				result.Stderr != want {
				t.Errorf("asked for the log of %s it says %q (%v), want %q", test.what, result.Stderr, err, want)
			}
		}
	})
	t.Run("the volume follows the Secret", func(t *testing.T) {
		e.kubectl(t, secret("two", certificate, key), "apply", "-f", "-")
		e.reports(t, "two", e.servers()...)
	})
	t.Run("readiness follows the probe", func(t *testing.T) {
		first, second := e.servers()[0], e.servers()[1]
		tell(t, first, "/unready")
		e.shows(t, "False", "get", "pod", "-n", namespace, first.Name, "-o", ready)
		e.ready(t, second)
		e.shows(t, "0", "get", "pdb", "-n", namespace, "server", "-o", "jsonpath={.status.disruptionsAllowed}")
		tell(t, second, "/unready")
		e.ready(t)
		tell(t, first, "/ready")
		tell(t, second, "/ready")
		e.ready(t, first, second)
		e.shows(t, "1", "get", "pdb", "-n", namespace, "server", "-o", "jsonpath={.status.disruptionsAllowed}")
	})
	t.Run("a process that crashes starts again", func(t *testing.T) {
		pod := e.servers()[0]
		if err := e.Signal(pod, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		e.shows(t, "1 137 True", "get", "pod", "-n", namespace, pod.Name, "-o",
			`jsonpath={.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].lastState.terminated.exitCode} {.status.conditions[?(@.type=="Ready")].status}`)
		e.ready(t, e.servers()...)
	})
	t.Run("a process that is not alive starts again", func(t *testing.T) {
		pod := e.servers()[1]
		log := e.follow(t, pod)
		tell(t, pod, "/dead")
		e.shows(t, "1 0 True", "get", "pod", "-n", namespace, pod.Name, "-o",
			`jsonpath={.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].lastState.terminated.exitCode} {.status.conditions[?(@.type=="Ready")].status}`)
		e.ready(t, e.servers()...)
		text, err := io.ReadAll(log)
		if want := "ending as " + pod.Name + "\n"; err != nil || !strings.HasSuffix(string(text), want) {
			t.Errorf("the log that was followed is %q (%v), want it to end with %q", text, err, want)
		}
	})
	t.Run("a process that hangs is not ready", func(t *testing.T) {
		first, second := e.servers()[0], e.servers()[1]
		if err := e.Signal(first, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		e.ready(t, second)
		if err := e.Signal(first, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		e.ready(t, first, second)
	})
	t.Run("a rolling restart is not noticed", func(t *testing.T) {
		before := e.servers()
		trying, stop := context.WithCancel(t.Context())
		tried := make(chan error, 1)
		tries := 0
		go func() {
			asked := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "asked",
				Labels: map[string]string{"ask": "server"}}}
			for ; ; tries++ {
				_, err := e.client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(trying, asked,
					metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				if trying.Err() != nil {
					err = nil
				} else if err == nil {
					continue
				}
				tried <- err
				return
			}
		}()
		defer stop()
		e.kubectl(t, "", "rollout", "restart", "-n", namespace, "deployment/server")
		e.kubectl(t, "", "rollout", "status", "-n", namespace, "deployment/server")
		eventually(t, "see the old pods gone", func(context.Context) error {
			for _, pod := range before {
				if slices.ContainsFunc(e.servers(), func(p Pod) bool { return p.Name == pod.Name }) {
					return fmt.Errorf("pod %s is there", pod.Name)
				}
				if err := syscall.Kill(pod.PID, 0); err == nil && pod.PID != 0 {
					return fmt.Errorf("process %d of pod %s is there", pod.PID, pod.Name)
				}
			}
			return nil
		})
		stop()
		if err := <-tried; err != nil {
			t.Errorf("refused meanwhile: %v", err)
		}
		t.Logf("%d writes meanwhile", tries)
		e.reports(t, "two", e.servers()...)
	})
	t.Run("helm installs", func(t *testing.T) {
		chart := t.TempDir()
		for path, content := range map[string]string{
			"Chart.yaml":             "{apiVersion: v2, name: tiny, version: 1.0.0}",
			"templates/release.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: tiny}}",
		} {
			file := filepath.Join(chart, path)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700),
				os.WriteFile(file, []byte(content), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		result, err := e.Helm(t.Context(), "install", "tiny", chart, "-n", namespace, "--wait",
			"--timeout=24h")
		if err != nil || result.ExitCode != 0 {
			t.Fatalf("%s%s (%v)", result.Stdout, result.Stderr, err)
		}
		e.shows(t, "Helm", "get", "configmap", "-n", namespace, "tiny", "-o",
			`jsonpath={.metadata.labels.app\.kubernetes\.io/managed-by}`)
	})
	t.Run("a namespace goes with all that is in it", func(t *testing.T) {
		e.kubectl(t, "", "delete", "namespace", namespace)
		if got := e.Pods(namespace); len(got) > 0 {
			t.Errorf("there are %v", got)
		}
		e.refusesNoEndpoint(t)
	})
}

const ready = `jsonpath={.status.conditions[?(@.type=="Ready")].status}`

func secret(message string, certificate, key []byte) string {
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {namespace: %s, name: server}, data: {message: %s, tls.crt: %s, tls.key: %s}}`,
		namespace, encode([]byte(message)), encode(certificate), encode(key))
}

// servers are the pods of the Deployment.
func (e *env) servers() []Pod {
	return slices.DeleteFunc(e.Pods(namespace), func(pod Pod) bool { return !strings.HasPrefix(pod.Name, "server-") })
}

// follow returns the log of a pod from now on until its process ends. Reading it ends in time in any case.
func (e *env) follow(t *testing.T, pod Pod) io.Reader {
	t.Helper()
	ctx, cancel := speed.WithTimeout(t.Context(), waitTimeout)
	t.Cleanup(cancel)
	options := &corev1.PodLogOptions{Follow: true, TailLines: new(int64)}
	log, err := e.client.CoreV1().Pods(namespace).GetLogs(pod.Name, options).Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	return log
}

// create makes the API server call the webhook.
func (e *env) create(ctx context.Context) (cluster.Result, error) {
	return e.Kubectl(ctx, cluster.Admin,
		`{apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, name: asked, labels: {ask: server}}}`,
		"create", "--dry-run=server", "-f", "-")
}

// reports waits until one of the pods answers with a message.
func (e *env) reports(t *testing.T, message string, pods ...Pod) {
	t.Helper()
	eventually(t, "see a warning", func(ctx context.Context) error {
		result, err := e.create(ctx)
		for _, pod := range pods {
			if strings.Contains(result.Stderr, pod.Name+" says "+message) {
				return nil
			}
		}
		return errors.Join(fmt.Errorf("want %v to say %s, got %s", pods, message, result.Stderr), err)
	})
}

// refusesNoEndpoint waits until the API server reports that there is no endpoint.
func (e *env) refusesNoEndpoint(t *testing.T) {
	t.Helper()
	eventually(t, "see a refusal", func(ctx context.Context) error {
		result, err := e.create(ctx)
		if err == nil && !strings.Contains(result.Stderr, "failed calling webhook") {
			err = fmt.Errorf("got %s", result.Stderr)
		}
		return err
	})
}

// ready waits until the Service has exactly these ready endpoints.
func (e *env) ready(t *testing.T, pods ...Pod) {
	t.Helper()
	var want []string
	for _, pod := range pods {
		want = append(want, pod.Name)
	}
	slices.Sort(want)
	eventually(t, "see the endpoints", func(ctx context.Context) error {
		result, err := e.Kubectl(ctx, cluster.Admin, "", "get", "endpointslices", "-n", namespace, "-l",
			"kubernetes.io/service-name=server",
			"-o", "jsonpath={range .items[*].endpoints[?(@.conditions.ready==true)]}{.targetRef.name} {end}")
		got := strings.Fields(result.Stdout)
		slices.Sort(got)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("got %v, want %v", got, want)
		}
		return err
	})
}

// tell sends a request to the health port of a pod.
func tell(t *testing.T, pod Pod, path string) {
	t.Helper()
	response, err := http.Post("http://"+pod.Addresses["health"]+path, "", bytes.NewReader(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", path, response.Status)
	}
}
