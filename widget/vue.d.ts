// Declares <tidings-inbox> for Vue templates: import type {} from 'tidings-inbox/vue';
import type { DefineComponent } from 'vue';
import type { TidingsAttributes } from './widget.js';

declare module 'vue' {
  interface GlobalComponents {
    'tidings-inbox': DefineComponent<TidingsAttributes>;
  }
}
