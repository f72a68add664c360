// Uses the types of the widget's packages as applications do. The tests compile this file, and do not run it.
import type {} from 'tidings-inbox/jsx';
import type {} from 'tidings-inbox/vue';
import { TidingsInbox as Element } from 'tidings-inbox';
import { TidingsInbox } from 'tidings-inbox-react';
import { TidingsInbox as VueInbox } from 'tidings-inbox-vue';
import { h } from 'vue';

const inbox: Element = document.createElement('tidings-inbox');
inbox.getToken = async () => 'token';
inbox.renderItem = (item, place) => { place.textContent = item.heading ?? item.type; };
inbox.addEventListener('tidings-new', event => event.detail.map(item => item.id));

export const element = <tidings-inbox user="mara" badge-max={9} label-bell="News" className="bell" />;
export const component = (
  <TidingsInbox user="mara" stream className="bell" getToken={() => 'token'} renderItem={item => <b>{item.object.title}</b>}
    onCount={event => event.detail.unseen.toFixed()} onItem={event => event.preventDefault()} />
);
// @ts-expect-error The component has no attribute `usr`.
export const wrong = <TidingsInbox usr="mara" />;

export const vue = h(VueInbox, { user: 'mara', getToken: () => 'token', onItem: (event: CustomEvent) => event.preventDefault() });
