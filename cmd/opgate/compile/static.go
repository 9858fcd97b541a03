package compile

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	policyconfig "k8s.io/apiserver/pkg/admission/plugin/policy/config/apis/policyconfig/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/manifest/loader"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/rules/backstop"
)

// What is written for the API server: two directories, since each plugin refuses the kinds of the other, and its
// configuration.
const (
	validatingDir, mutatingDir = "validating", "mutating"
	manifestFile               = "opgate.yaml"
	configurationFile          = "admission-configuration.yaml"
)

// static are the flags of --static.
type static struct {
	dir, nodeDir, namespace, configuration string
	maintainers, certificateWriters        []string
	keepPolicies                           bool
}

// validate checks the flags, those that need --static if it is set.
func (s *static) validate(identity string) error {
	if s.dir == "" {
		if len(s.maintainers) > 0 || s.keepPolicies || len(s.certificateWriters) > 0 || s.configuration != "" {
			return self.Usage("--maintainer, --certificate-writer, --keep-policies and --admission-config are about the files of --static, which is missing")
		}
		return nil
	}
	switch {
	case identity == "":
		return self.Usage("--static needs --opgate-identity: Opgate itself could not renew its certificate")
	case slices.Contains(s.maintainers, ""):
		return self.Usage("--maintainer is empty: name a user")
	case !path.IsAbs(s.nodeDir):
		return self.Usage("--node-dir %q has to be an absolute path", s.nodeDir)
	}
	return nil
}

// write writes the files, but only once they have been loaded as the API server loads them: one that it cannot load
// keeps it from starting.
func (s *static) write(identity string, compiled backstop.Objects, stdout io.Writer) error {
	in := backstop.StaticInput{Namespace: s.namespace, Opgate: identity, Maintainers: s.maintainers,
		CertificateWriters: s.certificateWriters,
		KeepPolicies:       s.keepPolicies, Compiled: compiled}
	in.Set = "none" // it is the digest of the rest
	validating, mutating := backstop.CompileStatic(in)
	text, err := documents(slices.Concat(validating, mutating))
	if err != nil {
		return err
	}
	in.Set = fmt.Sprintf("%x", sha256.Sum256(text))[:12]
	validating, mutating = backstop.CompileStatic(in)
	var existing []byte
	if s.configuration != "" {
		if existing, err = os.ReadFile(s.configuration); err != nil {
			return fmt.Errorf("compile: --admission-config: %w", err)
		}
	}
	dirs := map[string]string{"ValidatingAdmissionPolicy": validatingDir}
	if len(mutating) > 0 {
		dirs["MutatingAdmissionPolicy"] = mutatingDir
	}
	configuration, err := s.merge(existing, dirs)
	if err != nil {
		return fmt.Errorf("compile: --admission-config %s: %w", s.configuration, err)
	}
	for _, d := range []struct {
		dir     string
		objects []runtime.Object
		load    func(dir string) error
	}{{validatingDir, validating, loadValidating}, {mutatingDir, mutating, loadMutating}} {
		if len(d.objects) == 0 {
			continue
		}
		text, err := documents(d.objects)
		if err != nil {
			return err
		}
		if err := replace(filepath.Join(s.dir, d.dir), text, d.load); err != nil {
			return fmt.Errorf("compile: %s: the API server would not start with this directory: %w",
				filepath.Join(s.dir, d.dir), err)
		}
	}
	if err := os.WriteFile(filepath.Join(s.dir, configurationFile), configuration, 0o644); err != nil { //nolint:gosec // the API server reads it
		return fmt.Errorf("compile: %w", err)
	}
	fmt.Fprintf(stdout, "set %s is in %s: copy its directories to %s on each control plane node, and start kube-apiserver with\n"+
		"  --admission-control-config-file=%s\nfrom then on, edits of the files are in force within 61 s (docs/backstop.md)\n",
		in.Set, s.dir, s.nodeDir, path.Join(s.nodeDir, configurationFile))
	return nil
}

// replace writes a manifest beside others in a directory, if all of them can be loaded together.
func replace(dir string, text []byte, load func(dir string) error) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the API server reads it
		return err
	}
	trial, err := os.MkdirTemp(filepath.Dir(dir), ".opgate-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(trial) }()
	if err := os.CopyFS(trial, os.DirFS(dir)); err != nil {
		return err
	}
	// Only a new file can be renamed to the old one, which the API server may read at any time.
	next := filepath.Join(trial, manifestFile)
	if err := os.RemoveAll(next); err != nil {
		return err
	}
	if err := os.WriteFile(next, text, 0o644); err != nil { //nolint:gosec // the API server reads it
		return err
	}
	if err := load(trial); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(dir, manifestFile))
}

// merge returns an AdmissionConfiguration with the plugins that load the directories, and with all that there was.
func (s *static) merge(existing []byte, dirs map[string]string) ([]byte, error) {
	configuration := map[string]any{}
	if err := yaml.UnmarshalStrict(existing, &configuration); err != nil {
		return nil, err
	}
	want := metav1.TypeMeta{APIVersion: apiserver.SchemeGroupVersion.String(), Kind: "AdmissionConfiguration"}
	if existing != nil && (configuration["apiVersion"] != want.APIVersion || configuration["kind"] != want.Kind) {
		return nil, fmt.Errorf("it is %v %v, and has to be %s %s", configuration["apiVersion"], configuration["kind"],
			want.APIVersion, want.Kind)
	}
	configuration["apiVersion"], configuration["kind"] = want.APIVersion, want.Kind
	plugins, ok := configuration["plugins"].([]any)
	if !ok && configuration["plugins"] != nil {
		return nil, fmt.Errorf("plugins is no list")
	}
	for _, name := range slices.Sorted(maps.Keys(dirs)) {
		dir := path.Join(s.nodeDir, dirs[name])
		i := slices.IndexFunc(plugins,
			func(p any) bool { plugin, _ := p.(map[string]any); return plugin["name"] == name })
		if i < 0 {
			plugins = append(plugins, map[string]any{"name": name, "configuration": map[string]any{
				"apiVersion": policyconfig.SchemeGroupVersion.String(), "kind": name + "Configuration",
				"staticManifestsDir": dir}})
			continue
		}
		of, _ := plugins[i].(map[string]any)["configuration"].(map[string]any)
		if of["staticManifestsDir"] != dir {
			return nil, fmt.Errorf("plugin %s is configured already, and does not load %s: a plugin loads one directory, so add %s of %s to that one, "+
				"and name it with --node-dir", name, dir, manifestFile, filepath.Join(s.dir, dirs[name]))
		}
	}
	configuration["plugins"] = plugins
	return yaml.Marshal(configuration)
}

// documents returns objects as one YAML text, without the statuses, which the API server writes.
func documents(objects []runtime.Object) ([]byte, error) {
	var out bytes.Buffer
	for i, object := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, fmt.Errorf("encode %T: %w", object, err)
		}
		delete(content, "status")
		text, err := yaml.Marshal(content)
		if err != nil {
			return nil, fmt.Errorf("encode %T: %w", object, err)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(text)
	}
	return out.Bytes(), nil
}

// decoder decodes strictly, as that of the API server.
func decoder() (runtime.Decoder, error) {
	scheme := runtime.NewScheme()
	if err := admissionv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	scheme.AddUnversionedTypes(metav1.SchemeGroupVersion, &metav1.List{}, &metav1.Status{})
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer(), nil
}

func loadValidating(dir string) error {
	return load(dir, func(b *admissionv1.ValidatingAdmissionPolicyBinding) string { return b.Spec.PolicyName },
		accept[*admissionv1.ValidatingAdmissionPolicy])
}

func loadMutating(dir string) error {
	return load(dir, func(b *admissionv1.MutatingAdmissionPolicyBinding) string { return b.Spec.PolicyName },
		accept[*admissionv1.MutatingAdmissionPolicy])
}

// load loads a directory by the API server's own loader.
func load[P, B metav1.Object](dir string, policyOf func(B) string, policy loader.AcceptObjectFunc[P]) error {
	decoder, err := decoder()
	if err != nil {
		return err
	}
	_, _, _, err = loader.LoadPolicyManifests(dir, decoder, policy, accept[B], policyOf)
	return err
}

// accept accepts one kind.
func accept[T metav1.Object](object runtime.Object) ([]T, error) {
	if o, ok := object.(T); ok {
		return []T{o}, nil
	}
	return nil, loader.ErrUnrecognizedType
}
