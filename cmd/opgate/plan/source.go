package plan

import (
	"archive/tar"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/operator-framework/operator-registry/alpha/declcfg"
	"github.com/operator-framework/operator-registry/alpha/model"
	"github.com/operator-framework/operator-registry/alpha/property"
	"github.com/operator-framework/operator-registry/pkg/api"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/opgate/opgate/cmd/opgate/diff"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

const (
	// configsLabel of a catalog image names the directory of its file-based catalog; configsDirectory is the usual one.
	configsLabel     = "operators.operatorframework.io.index.configs.v1"
	configsDirectory = "/configs"
	// maxCatalog bounds the files of a catalog image, in bytes. The largest catalogs in use have 500 MiB.
	maxCatalog = 4 << 30
	// podPort is the port that the pods of a CatalogSource serve it at.
	podPort = "50051"
	// maxMessage bounds a bundle that is received, in bytes.
	maxMessage = 32 << 20
)

// readFiles reads a package of a catalog in a directory, a file or an OCI layout.
func readFiles(ctx context.Context, name, pkg string, read func(files int)) (*catalogPackage, error) {
	if _, err := os.Stat(filepath.Join(name, "oci-layout")); err == nil {
		dir, err := unpack(name)
		defer os.RemoveAll(dir) //nolint:errcheck // it is temporary
		if err != nil {
			return nil, err
		}
		name = dir
	}
	root, err := diff.CatalogFS(name, read, pkg)
	if err != nil {
		return nil, err
	}
	var metas []*declcfg.Meta
	var bundles []declcfg.Bundle // without their manifests, which are decoded where they are compared
	err = declcfg.WalkMetasFS(ctx, root, func(file string, meta *declcfg.Meta, err error) error {
		switch {
		case err != nil || meta.Package != pkg && (meta.Schema != declcfg.SchemaPackage || meta.Name != pkg):
		case meta.Schema == declcfg.SchemaBundle:
			var b declcfg.Bundle
			err = json.Unmarshal(meta.Blob, &b)
			b.Objects = []string{"{}"} // opm wants an image or manifests
			bundles = append(bundles, b)
		default:
			metas = append(metas, meta)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		return nil
	}, declcfg.WithConcurrency(1))
	if err != nil {
		return nil, err
	}
	config, err := declcfg.LoadSlice(metas)
	if err != nil {
		return nil, err
	}
	config.Bundles = bundles
	found, err := declcfg.ConvertToModel(*config)
	switch {
	case err != nil:
		return nil, errors.New(branches.ReplaceAllString(err.Error(), " "))
	case found[pkg] == nil:
		return nil, fmt.Errorf("it has no package %s", text.Name(pkg))
	}
	return newPackage(found[pkg]), nil
}

// branches are what makes a tree of lines of the faults that opm finds in a catalog.
var branches = regexp.MustCompile(`\s*[├└]── `)

// unpack writes the catalog in the first image of an OCI layout to a directory that the caller removes.
func unpack(name string) (dir string, err error) {
	index, err := layout.ImageIndexFromPath(name)
	if err != nil {
		return "", err
	}
	image, err := firstImage(index)
	if err != nil {
		return "", err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return "", err
	}
	if dir, err = os.MkdirTemp("", "opgate-catalog-"); err != nil {
		return "", err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return dir, err
	}
	defer root.Close() //nolint:errcheck // nothing is written by it
	flat := mutate.Extract(image)
	defer flat.Close() //nolint:errcheck // it has been read
	below := strings.Trim(cmp.Or(config.Config.Labels[configsLabel], configsDirectory), "/") + "/"
	files, left := tar.NewReader(flat), int64(maxCatalog)
	for {
		header, err := files.Next()
		switch {
		case errors.Is(err, io.EOF): // an archive also ends where an error does
			_, err := io.Copy(io.Discard, flat)
			return dir, err
		case err != nil:
			return dir, err
		}
		file, ok := strings.CutPrefix(strings.TrimPrefix(path.Clean(header.Name), "/"), below)
		if !ok || header.Typeflag != tar.TypeReg {
			continue
		}
		if left -= header.Size; left < 0 {
			return dir, fmt.Errorf("the files of the catalog have more than the %d bytes that are read", int64(maxCatalog))
		}
		if err := write(root, file, files); err != nil {
			return dir, err
		}
	}
}

func write(root *os.Root, name string, content io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	file, err := root.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return cmp.Or(err, file.Close())
}

// firstImage returns the first image of an OCI layout. A catalog is the same for all platforms, and an attestation comes
// after the image that it is of.
func firstImage(index v1.ImageIndex) (v1.Image, error) {
	manifests, err := partial.Manifests(index)
	for _, of := range manifests {
		switch of := of.(type) {
		case v1.ImageIndex:
			return firstImage(of)
		case v1.Image:
			return of, nil
		}
	}
	return nil, cmp.Or(err, errors.New("the OCI layout has no image"))
}

// readServed reads a package of a catalog that is served by gRPC.
func readServed(ctx context.Context, address, pkg string, read func(bundles int)) (*catalogPackage, error) {
	connection, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return nil, err
	}
	defer connection.Close() //nolint:errcheck // it has been read
	client := api.NewRegistryClient(connection)
	content, err := client.GetPackage(ctx, &api.GetPackageRequest{Name: pkg})
	if err != nil {
		return nil, fmt.Errorf("get package %s: %w", text.Name(pkg), err)
	}
	p := &model.Package{Name: pkg, DefaultChannel: &model.Channel{Name: content.DefaultChannelName},
		Deprecation: &model.Deprecation{Message: content.Deprecation.GetMessage()}, Channels: map[string]*model.Channel{}}
	for _, c := range content.Channels {
		p.Channels[c.Name] = &model.Channel{Name: c.Name, Bundles: map[string]*model.Bundle{},
			Deprecation: &model.Deprecation{Message: c.Deprecation.GetMessage()}}
	}
	// Bundles that are asked for one by one have no edges.
	all, err := client.ListBundles(ctx, &api.ListBundlesRequest{})
	for n := 1; err == nil; n++ {
		var b *api.Bundle
		if b, err = all.Recv(); err == nil && b.GetPackageName() == pkg && p.Channels[b.ChannelName] != nil {
			p.Channels[b.ChannelName].Bundles[b.CsvName], err = served(b)
		}
		if read != nil {
			read(n)
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("list bundles: %w", err)
	}
	return newPackage(p), nil
}

// served returns a bundle that is served. Of most a catalog has an image and some metadata, which opm serves as a
// ClusterServiceVersion that installs nothing.
func served(b *api.Bundle) (*model.Bundle, error) {
	var csv v1alpha1.ClusterServiceVersion
	_ = json.Unmarshal([]byte(b.GetCsvJson()), &csv) // the comparison reports what is wrong with it
	install := csv.Spec.InstallStrategy.StrategySpec
	if b.BundlePath != "" && len(b.Object) == 1 &&
		len(install.DeploymentSpecs)+len(install.Permissions)+len(install.ClusterPermissions) == 0 {
		b.Object = nil
	}
	bundle, err := api.ConvertAPIBundleToModelBundle(b)
	if err != nil {
		return nil, fmt.Errorf("bundle %s: %w", text.Name(b.CsvName), err)
	}
	bundle.Properties = append(bundle.Properties, property.MustBuildCSVMetadata(csv))
	bundle.Deprecation = &model.Deprecation{Message: b.Deprecation.GetMessage()}
	return bundle, nil
}

// forward makes the port of a pod of a catalog one of this machine, as kubectl port-forward does, until ctx is done. The
// user needs the rights to list pods and to create pods/portforward in the namespace of the catalog.
func forward(ctx context.Context, config *rest.Config, source olm.Catalog) (address string, err error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	pods, err := client.CoreV1().Pods(source.Namespace).List(ctx, metav1.ListOptions{LabelSelector: metakey.CatalogSource + "=" + source.Name})
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(pods.Items, ready)
	if i < 0 {
		return "", errors.New("it has no pod that is ready")
	}
	url := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(source.Namespace).Name(pods.Items[i].Name).
		SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return "", err
	}
	tunnel, err := portforward.NewSPDYOverWebsocketDialer(url, config)
	if err != nil {
		return "", err
	}
	dialer := portforward.NewFallbackDialer(tunnel,
		spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url),
		func(err error) bool { return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err) })
	open, ended := make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:" + podPort}, ctx.Done(), open,
		io.Discard, io.Discard)
	if err != nil {
		return "", err
	}
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-open:
	case <-ctx.Done():
		return "", ctx.Err()
	case err := <-ended:
		return "", fmt.Errorf("forward a port of pod %s: %w", pods.Items[i].Name, err)
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return "", err
	}
	return "127.0.0.1:" + strconv.Itoa(int(ports[0].Local)), nil
}

func ready(pod corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
