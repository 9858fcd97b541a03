package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// dialTimeout bounds the dial of a pod.
const dialTimeout = 10 * time.Second

// proxy forwards the connections of the API server to Services and pods, as kube-proxy and the network would.
type proxy struct {
	node      *Node
	services  corelisters.ServiceLister
	endpoints *endpoints
	listener  net.Listener
	all       sync.WaitGroup

	mu      sync.Mutex
	open    map[net.Conn]bool
	stopped bool
}

// startProxy listens on the API server's egress socket. It must be called before the node's informers start.
func startProxy(ctx context.Context, n *Node) (*proxy, error) {
	endpoints, err := watchEndpoints(ctx, n.factory.Discovery().V1().EndpointSlices().Informer())
	if err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", n.cluster.EgressSocket())
	if err != nil {
		return nil, err
	}
	p := &proxy{
		node:      n,
		services:  n.factory.Core().V1().Services().Lister(),
		endpoints: endpoints,
		listener:  listener,
		open:      map[net.Conn]bool{},
	}
	p.all.Go(func() { endpoints.run(ctx) })
	p.all.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			if p.keep(connection) {
				p.all.Go(func() { p.serve(ctx, connection) })
			}
		}
	})
	return p, nil
}

// stop closes all connections.
func (p *proxy) stop() error {
	err := p.listener.Close()
	p.mu.Lock()
	p.stopped = true
	for connection := range p.open {
		_ = connection.Close()
	}
	p.mu.Unlock()
	p.all.Wait()
	return err
}

// keep makes stop close a connection. It returns false when stop was called already.
func (p *proxy) keep(connection net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		_ = connection.Close()
		return false
	}
	p.open[connection] = true
	return true
}

func (p *proxy) drop(connection net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, connection)
	_ = connection.Close()
}

// serve answers one CONNECT request, and then copies data in both directions.
func (p *proxy) serve(ctx context.Context, client net.Conn) {
	defer p.drop(client)
	reader := bufio.NewReader(client)
	request, err := http.ReadRequest(reader)
	if err != nil {
		return
	}
	if request.Method != http.MethodConnect {
		fmt.Fprintf(client, "HTTP/1.1 405 want CONNECT\r\nContent-Length: 0\r\n\r\n")
		return
	}
	server, err := p.dial(ctx, request.Host)
	if err != nil {
		fmt.Fprintf(client, "HTTP/1.1 503 %v\r\nContent-Length: 0\r\n\r\n", err)
		return
	}
	if !p.keep(server) {
		return
	}
	defer p.drop(server)
	if _, err := io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { carry(client, server) })
	carry(server, reader)
	back.Wait()
}

// carry copies until from ends or fails, and closes to: after an end for writing only.
func carry(to net.Conn, from io.Reader) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		_ = half.CloseWrite() // it may be closed as well
		return
	}
	_ = to.Close()
}

func (p *proxy) dial(ctx context.Context, address string) (net.Conn, error) {
	address, err := p.resolve(address)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	return dialer.DialContext(ctx, "tcp", address)
}

// resolve returns the address on this machine for that of a Service or a pod. Others are returned unchanged.
func (p *proxy) resolve(address string) (string, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	number, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return "", err
	}
	port := int32(number)
	services, err := p.services.List(labels.Everything())
	if err != nil {
		return "", err
	}
	for _, service := range services {
		if slices.Contains(service.Spec.ClusterIPs, host) {
			return p.endpoint(service, port)
		}
	}
	if address, known := p.node.locate(host, port); known {
		if address == "" {
			return "", fmt.Errorf("pod %s has no port %d", host, port)
		}
		return address, nil
	}
	return address, nil
}

// endpoint picks one that is ready. If none is, it picks one that ends but still serves.
func (p *proxy) endpoint(service *corev1.Service, port int32) (string, error) {
	i := slices.IndexFunc(service.Spec.Ports, func(of corev1.ServicePort) bool { return of.Port == port })
	if i < 0 {
		return "", fmt.Errorf("service %s/%s has no port %d", service.Namespace, service.Name, port)
	}
	name := service.Spec.Ports[i].Name
	var ready, ending []string
	for _, slice := range p.endpoints.of(service.Namespace, service.Name) {
		for _, of := range slice.Ports {
			if of.Port == nil || of.Name == nil || *of.Name != name {
				continue
			}
			for _, endpoint := range slice.Endpoints {
				address, known := p.node.locate(endpoint.Addresses[0], *of.Port)
				if !known {
					address = net.JoinHostPort(endpoint.Addresses[0], strconv.Itoa(int(*of.Port)))
				}
				conditions := endpoint.Conditions
				switch {
				case conditions.Ready == nil || *conditions.Ready:
					ready = append(ready, address)
				case isTrue(conditions.Serving) && isTrue(conditions.Terminating):
					ending = append(ending, address)
				}
			}
		}
	}
	if len(ready) == 0 {
		ready = ending
	}
	if len(ready) == 0 {
		return "", fmt.Errorf("service %s/%s has no endpoint that is ready", service.Namespace, service.Name)
	}
	address := ready[rand.IntN(len(ready))]
	if address == "" {
		return "", errors.New("the pod does not declare that port")
	}
	return address, nil
}

func isTrue(condition *bool) bool { return condition != nil && *condition }

// locate returns the address on this machine of a pod's port, and whether there is such a pod. The address is empty if
// the pod does not declare the port.
func (n *Node) locate(ip string, port int32) (address string, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		p.mu.Lock()
		mine := p.ip == ip
		p.mu.Unlock()
		if mine {
			address, _ = p.address(port)
			return address, true
		}
	}
	return "", false
}
