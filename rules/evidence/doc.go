// Package evidence reads the annotations of a plan by which users have overridden a refusal or consented to a change,
// and when these end. What it returns is what the plan states: who may write that is judged elsewhere. Time is an
// input.
package evidence
