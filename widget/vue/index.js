// <TidingsInbox>: the element of `tidings-inbox` for Vue (docs/guides/front-ends.md).
import { Teleport, defineComponent, h, onMounted, onUpdated, ref, shallowReactive, watch } from 'vue';
import 'tidings-inbox';

const EVENTS = ['open', 'item', 'new', 'count', 'error'];

export const TidingsInbox = defineComponent({
  name: 'TidingsInbox',
  inheritAttrs: false,
  props: { user: String, getToken: Function },
  emits: EVENTS,
  setup(props, { attrs, emit, slots }) {
    const element = ref(null), places = shallowReactive(new Map());
    // A slot is not reactive, but a component updates with its slots.
    const connect = () => {
      const inbox = element.value, asks = !!props.getToken, renders = !!slots.item;
      if (asks === !!inbox.getToken && renders === !!inbox.renderItem) return;
      inbox.renderItem = renders ? (item, place) => {
        places.set(place, item);
        return () => places.delete(place);
      } : undefined;
      // This starts the element again, also with another `renderItem`.
      inbox.getToken = asks ? () => props.getToken() : undefined;
    };
    // The element gets its user last, and not on the server: without one, it sends nothing.
    onMounted(() => {
      const inbox = element.value;
      for (const name of EVENTS) inbox.addEventListener(`tidings-${name}`, event => emit(name, event));
      connect();
      watch(() => props.user, user => (user ? inbox.setAttribute('user', user) : inbox.removeAttribute('user')), { immediate: true });
    });
    onUpdated(connect);
    return () => {
      const attributes = Object.fromEntries(Object.entries(attrs).filter(([, value]) => value !== false));
      return [
        h('tidings-inbox', { ...attributes, ref: element }, slots.default?.()),
        ...[...places].map(([place, item]) => h(Teleport, { to: place, key: item.id }, slots.item?.({ item }))),
      ];
    };
  },
});
