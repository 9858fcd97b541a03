package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// volumeDir is where a volume of the pod is on this machine.
func (p *pod) volumeDir(name string) string { return filepath.Join(p.dir, "volumes", name) }

// writeVolumes updates the content of all volumes. A kubelet takes up to two minutes to notice a change of a Secret
// or a ConfigMap; here the pod is notified.
func (p *pod) writeVolumes(ctx context.Context, object *corev1.Pod) error {
	for _, of := range object.Spec.Volumes {
		dir := p.volumeDir(of.Name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if of.EmptyDir != nil {
			continue
		}
		files, err := p.content(ctx, object.Namespace, &of.VolumeSource)
		if err != nil {
			return fmt.Errorf("volume %s: %w", of.Name, err)
		}
		if known, ok := p.volumes[of.Name]; ok && maps.EqualFunc(known, files, slices.Equal) {
			continue
		}
		if err := publish(dir, files); err != nil {
			return fmt.Errorf("volume %s: %w", of.Name, err)
		}
		p.volumes[of.Name] = files
	}
	return nil
}

// content returns the files of a volume.
func (p *pod) content(ctx context.Context, namespace string, source *corev1.VolumeSource) (map[string][]byte, error) {
	switch {
	case source.Secret != nil:
		return p.secret(ctx, namespace, source.Secret.SecretName, source.Secret.Items, source.Secret.Optional)
	case source.ConfigMap != nil:
		return p.configMap(ctx, namespace, source.ConfigMap.Name, source.ConfigMap.Items, source.ConfigMap.Optional)
	case source.Projected != nil:
		files := map[string][]byte{}
		for _, part := range source.Projected.Sources {
			var (
				some map[string][]byte
				err  = errors.New("this node projects only secrets and configmaps")
			)
			switch {
			case part.Secret != nil:
				some, err = p.secret(ctx, namespace, part.Secret.Name, part.Secret.Items, part.Secret.Optional)
			case part.ConfigMap != nil:
				some, err = p.configMap(ctx, namespace, part.ConfigMap.Name, part.ConfigMap.Items,
					part.ConfigMap.Optional)
			}
			if err != nil {
				return nil, err
			}
			maps.Copy(files, some)
		}
		return files, nil
	default:
		return nil, errors.New("this node knows only emptyDir, secret, configMap and projected")
	}
}

func (p *pod) secret(
	ctx context.Context, namespace, name string, items []corev1.KeyToPath, optional *bool,
) (map[string][]byte, error) {
	secret, err := p.node.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, unlessOptional(err, optional)
	}
	return selectItems("secret "+name, secret.Data, items, optional)
}

func (p *pod) configMap(
	ctx context.Context, namespace, name string, items []corev1.KeyToPath, optional *bool,
) (map[string][]byte, error) {
	configMap, err := p.node.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, unlessOptional(err, optional)
	}
	data := map[string][]byte{}
	for key, value := range configMap.Data {
		data[key] = []byte(value)
	}
	maps.Copy(data, configMap.BinaryData)
	return selectItems("configmap "+name, data, items, optional)
}

func unlessOptional(err error, optional *bool) error {
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil
	}
	return err
}

// selectItems returns the keys that a volume selects, all of them if it names none.
func selectItems(
	what string, data map[string][]byte, items []corev1.KeyToPath, optional *bool,
) (map[string][]byte, error) {
	if len(items) == 0 {
		return data, nil
	}
	files := map[string][]byte{}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok && (optional == nil || !*optional) {
			return nil, fmt.Errorf("%s has no key %s", what, item.Key)
		}
		if ok {
			files[item.Path] = value
		}
	}
	return files, nil
}

// dataLink is the link that is replaced to change all files of a volume at once, as a kubelet does. Programs that watch
// files must handle it.
const dataLink = "..data"

// publish replaces the content of dir by files, by their paths, atomically.
func publish(dir string, files map[string][]byte) error {
	next, err := os.MkdirTemp(dir, "..")
	if err != nil {
		return err
	}
	tops := map[string]bool{}
	for path, content := range files {
		file := filepath.Join(next, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return err
		}
		top, _, _ := strings.Cut(path, "/")
		tops[top] = true
	}
	link, temporary := filepath.Join(dir, dataLink), filepath.Join(dir, dataLink+"_tmp")
	previous, err := os.Readlink(link)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Symlink(filepath.Base(next), temporary); err != nil {
		return err
	}
	if err := os.Rename(temporary, link); err != nil {
		return err
	}
	for top := range tops {
		if err := os.Symlink(filepath.Join(dataLink, top), filepath.Join(dir, top)); err != nil &&
			!errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if previous == "" {
		return nil
	}
	shown, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range shown {
		if !strings.HasPrefix(entry.Name(), "..") && !tops[entry.Name()] {
			if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(filepath.Join(dir, previous))
}
