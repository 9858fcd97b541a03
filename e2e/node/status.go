package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/e2e/internal/speed"
)

// reportTimeout bounds the attempts to write a status. A failed write is repeated with the next change.
const reportTimeout = speed.Wait

// state is that of the container of a pod.
type state struct {
	// One of these, or none before the first start.
	waiting    *corev1.ContainerStateWaiting
	running    *corev1.ContainerStateRunning
	terminated *corev1.ContainerStateTerminated
	// last is how it ended the last time.
	last *corev1.ContainerStateTerminated

	started, ready bool
	restarts       int32
	final          bool // it does not start again
}

// reason is why a container cannot start, as in the status.
type reason struct {
	word string
	err  error
}

func because(word string, err error) error { return &reason{word, err} }

func (r *reason) Error() string { return r.err.Error() }

func (r *reason) Unwrap() error { return r.err }

// wait records what the container waits for, and reports whether that is new.
func (s *state) wait(err error) bool {
	before := s.waiting
	s.waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating", Message: err.Error()}
	if known := (*reason)(nil); errors.As(err, &known) {
		s.waiting.Reason = known.word
	}
	s.running, s.terminated = nil, nil
	return before == nil || *before != *s.waiting
}

func (s *state) run() {
	s.waiting, s.terminated = nil, nil
	s.running = &corev1.ContainerStateRunning{StartedAt: metav1.Now()}
}

func (s *state) end(ended *os.ProcessState) {
	s.terminated = &corev1.ContainerStateTerminated{
		ExitCode: int32(ended.ExitCode()), //nolint:gosec // from 0 to 255, or -1
		Reason:   "Completed", StartedAt: s.running.StartedAt, FinishedAt: metav1.Now(),
	}
	if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		s.terminated.Signal = int32(status.Signal()) //nolint:gosec // as above
		s.terminated.ExitCode = 128 + s.terminated.Signal
	}
	if s.terminated.ExitCode != 0 {
		s.terminated.Reason = "Error"
	}
	s.running, s.waiting, s.last = nil, nil, s.terminated
	s.started, s.ready = false, false
}

// phase is that of the pod.
func (s *state) phase() corev1.PodPhase {
	switch {
	case s.final && s.last != nil && s.last.ExitCode == 0:
		return corev1.PodSucceeded
	case s.final && s.last != nil:
		return corev1.PodFailed
	case s.running == nil && s.last == nil:
		return corev1.PodPending
	default:
		return corev1.PodRunning
	}
}

// status returns the status of the pod to be written.
func (p *pod) status(object *corev1.Pod) *corev1.PodStatus {
	container := object.Spec.Containers[0]
	s := p.state
	status := &corev1.PodStatus{
		ObservedGeneration: object.Generation,
		Phase:              s.phase(),
		StartTime:          object.Status.StartTime,
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: container.Name, Image: container.Image, ImageID: container.Image,
			State: corev1.ContainerState{Waiting: s.waiting, Running: s.running, Terminated: s.terminated},
			Ready: s.ready, Started: &s.started, RestartCount: s.restarts,
		}},
	}
	if status.StartTime == nil {
		now := metav1.Now()
		status.StartTime = &now
		if p.written != nil {
			status.StartTime = p.written.StartTime
		}
	}
	if s.last != nil && s.last != s.terminated {
		status.ContainerStatuses[0].LastTerminationState.Terminated = s.last
	}
	if s.restarts > 0 && s.terminated != nil && !s.final {
		status.ContainerStatuses[0].State = corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "it starts again in a moment"},
		}
		status.ContainerStatuses[0].LastTerminationState.Terminated = s.terminated
	}
	p.mu.Lock()
	if p.ip != "" {
		status.PodIP, status.PodIPs = p.ip, []corev1.PodIP{{IP: p.ip}}
	}
	p.mu.Unlock()
	ended := status.Phase == corev1.PodSucceeded || status.Phase == corev1.PodFailed
	why := "ContainersNotReady"
	if ended {
		why = "PodCompleted"
	}
	for _, condition := range []struct {
		kind corev1.PodConditionType
		met  bool
	}{{corev1.PodInitialized, true}, {corev1.ContainersReady, s.ready}, {corev1.PodReady, s.ready}} {
		status.Conditions = append(status.Conditions, p.condition(object, condition.kind, condition.met, why))
	}
	return status
}

// condition keeps the time of a condition that was so before.
func (p *pod) condition(object *corev1.Pod, kind corev1.PodConditionType, met bool, why string) corev1.PodCondition {
	condition := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
		ObservedGeneration: object.Generation}
	if !met {
		condition.Status, condition.Reason = corev1.ConditionFalse, why
	}
	if p.written != nil {
		for _, before := range p.written.Conditions {
			if before.Type == kind && before.Status == condition.Status {
				condition.LastTransitionTime = before.LastTransitionTime
			}
		}
	}
	return condition
}

// report writes the status if it has changed. Conditions of others, such as that of an eviction, stay.
func (p *pod) report(ctx context.Context) {
	object := p.object.Load()
	status := p.status(object)
	if p.written != nil && equality.Semantic.DeepEqual(status, p.written) {
		return
	}
	patch, err := statusPatch(object, status)
	if err != nil {
		fmt.Fprintf(p.node.log, "write the status of %s: %v\n", p, err)
		return
	}
	var last error
	err = speed.Poll(ctx, pollInterval, reportTimeout, func(ctx context.Context) (bool, error) {
		_, last = p.node.client.CoreV1().Pods(object.Namespace).Patch(ctx, object.Name, types.StrategicMergePatchType,
			patch, metav1.PatchOptions{}, "status")
		return ignoreGone(last) == nil, nil
	})
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(p.node.log, "write the status of %s: %v\n", p, last)
		return
	}
	p.written = status
}

// statusPatch is the patch that makes status that of the pod, and of no other pod of that name.
func statusPatch(object *corev1.Pod, status *corev1.PodStatus) ([]byte, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return nil, err
	}
	for _, condition := range fields["conditions"].([]any) {
		// Conditions are merged: what is left out would stay.
		if condition := condition.(map[string]any); condition["reason"] == nil {
			condition["reason"] = nil
		}
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": object.UID}, "status": fields})
}

// ignoreGone ignores errors about a pod that was deleted or replaced.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
