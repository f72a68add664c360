// <TidingsInbox>: the element of `tidings-inbox` for React (docs/guides/front-ends.md).
import { Fragment, createElement, useLayoutEffect, useRef, useState } from 'react';
import { createPortal } from 'react-dom';
import 'tidings-inbox';

const EVENTS = { onOpen: 'open', onItem: 'item', onNew: 'new', onCount: 'count', onError: 'error' };

export function TidingsInbox(props) {
  const { user, getToken, renderItem, onOpen, onItem, onNew, onCount, onError, ...attributes } = props;
  const element = useRef(null), latest = useRef(props), [places, setPlaces] = useState([]), renders = !!renderItem, asks = !!getToken;
  useLayoutEffect(() => { latest.current = props; });
  // The element gets its user last, and not on the server: without one, it sends nothing.
  // In a layout effect, a new user comes together with its other attributes.
  useLayoutEffect(() => {
    const inbox = element.current, life = new AbortController();
    for (const [prop, name] of Object.entries(EVENTS)) {
      inbox.addEventListener(`tidings-${name}`, event => latest.current[prop]?.(event), { signal: life.signal });
    }
    inbox.getToken = asks ? () => latest.current.getToken() : undefined;
    inbox.renderItem = renders ? (item, place) => {
      setPlaces(old => [...old, { item, place }]);
      return () => setPlaces(old => old.filter(one => one.place !== place));
    } : undefined;
    if (user) inbox.setAttribute('user', user);
    return () => {
      life.abort();
      inbox.removeAttribute('user');
    };
  }, [user, asks, renders]);
  return createElement(Fragment, null, createElement('tidings-inbox', { ...attributes, ref: element }),
    renders && places.map(({ item, place }) => createPortal(renderItem(item), place, item.id)));
}
